"""Images, collections and labels: files, folders, tars and lists as one indexed sequence."""
