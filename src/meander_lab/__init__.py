"""What measures Meander and is no part of it: experiments, benchmarks, chaos, baselines, servers."""
