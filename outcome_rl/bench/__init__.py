"""The benchmark of the policy loss, `outcome-rl bench loss`; a checkout has more in the folder `bench/`."""
