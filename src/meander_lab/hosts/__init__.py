"""Several hosts on one machine: network namespaces on a switch of their own (`hosts`)."""
