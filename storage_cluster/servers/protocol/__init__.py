"""What requests and answers of the Swift API say, as values: nothing here sends or stores."""
