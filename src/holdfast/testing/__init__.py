"""What tests need: a clock moved by hand, opened stores, a reference model, and the suite that every store passes."""
