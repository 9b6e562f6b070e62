"""What people look at: the leaderboard and its suites, scores, cards, figures."""
