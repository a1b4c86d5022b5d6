"""The parts of the command line: its application, its options, its output and its longer commands."""
