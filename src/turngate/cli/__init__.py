"""The command line. `main` is the entry; all else is imported when a command needs it."""
