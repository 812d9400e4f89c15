"""HTML pages and charts. No other room writes HTML.

parts.py      parts of a page (texts, tables, charts, strips of images, commands), and the page as one file
charts.py     charts of runs and of suites          images.py     images of a stream and the answers about them
sections.py   sections of the page of a suite       pictures.py   charts as SVG, PDF and PNG files
templates/    the HTML, the style and the script of a page
suite.py compare.py demo.py stream.py               the pages
"""
