"""One module per format that other programs log in; what several of them share lies in the folders beside this one."""
