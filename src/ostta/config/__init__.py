"""Options, profiles and registered names: how each is declared, and which applies."""
