"""How likely causes are: fitted on recordings whose truth is known, and measured on families left out."""
