"""`python -m fedtempo`: the same as the command `fedtempo`."""

from fedtempo.cli import main

main()
