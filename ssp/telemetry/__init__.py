"""What a run says about itself: metrics, timeline, console, transcripts. Nothing here decides
anything."""
