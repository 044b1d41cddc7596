"""The command line: parse, call, print. Importing it does not import torch."""
