"""ncclfix is a program; this package only runs it, by python -m ncclfix."""
