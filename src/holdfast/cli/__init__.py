"""The command line: noun, then verb, thin over `App`. One file per noun; the list of nouns is in `main`."""
