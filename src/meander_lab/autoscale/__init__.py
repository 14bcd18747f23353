"""Autoscalers compared: the same traces, the same queues, every policy; checked with the real runtime.

| file | what |
| --- | --- |
| `traces` | loads by the second: made after patterns, and recorded |
| `queueing` | a deployment as queues: what a policy's orders do to latency and nodes |
| `policies` | ours, DS2, the Horizontal Pod Autoscaler, static ones |
| `clairvoyant` | the least that is possible, by dynamic programming |
| `compare` | all of it, and the claims |
| `checked` | the queues against the real runtime |
| `live` | the real thing: a stream with a spike, and the autoscaler on |
"""
