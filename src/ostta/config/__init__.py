"""Declaration and resolution of options, profiles and registered components."""
