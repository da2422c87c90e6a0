"""Learning: training tasks, data sets from sessions, scores and rewards; trains nothing yet."""
