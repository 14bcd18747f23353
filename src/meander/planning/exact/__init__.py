"""The optimal plans: one step, a sequence, the front, and how a plan is carried out in rounds."""
