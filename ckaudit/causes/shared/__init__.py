"""What several causes share: measures of one kind of evidence, links between units, and voided numbers."""
