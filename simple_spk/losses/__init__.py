"""SimPLE and the losses it is compared with."""
