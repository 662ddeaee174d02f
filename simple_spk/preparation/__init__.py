"""From archives and folders of recordings to the manifests and trial lists that training reads."""
