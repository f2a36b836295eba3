"""The playground, by HTTP and in Chromium."""
