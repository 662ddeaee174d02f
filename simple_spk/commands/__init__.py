"""The commands of simple-spk, a file each: add_arguments(parser) and run(options)."""
