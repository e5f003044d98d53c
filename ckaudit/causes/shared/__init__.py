"""What several causes share: evidence of one kind, places, links between findings."""
