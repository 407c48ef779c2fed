"""What the pages show: functions from the app's verbs to frozen values. No HTML, no SQL."""
