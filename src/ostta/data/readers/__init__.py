"""One file per format. Each reader gives `Images`: labels, and a function that decodes one image when it is asked for."""
