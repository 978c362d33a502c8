"""`python -m longshot` is the command line."""

from longshot.cli import main

if __name__ == "__main__":
    main.run()
