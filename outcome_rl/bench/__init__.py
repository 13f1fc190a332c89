"""The benchmark of the policy loss, `outcome-rl bench loss`; those of a checkout are in the folder `bench/`."""
