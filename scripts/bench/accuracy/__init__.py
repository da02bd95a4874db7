"""The accuracy of formats, files and schemas."""
