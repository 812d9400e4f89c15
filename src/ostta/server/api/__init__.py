"""The HTTP interface: addresses, models of bodies and answers, uploads, event streams."""
