"""Pictures of a suite or a folder as files for papers and slides: SVG, PDF and PNG."""
