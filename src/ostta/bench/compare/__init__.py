"""Two results, or two folders of results, beside each other: settings, figures, and image by image."""
