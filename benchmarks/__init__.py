"""Speed, each figure a ratio that is measured in one run, so that it holds on any machine."""
