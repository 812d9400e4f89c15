"""Getting data sets from where they are published."""
