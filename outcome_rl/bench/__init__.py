"""`outcome-rl bench loss`: the policy loss on this machine; a checkout has more in the folder `bench/`."""
