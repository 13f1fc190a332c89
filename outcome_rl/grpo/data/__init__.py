"""Problems and prompts."""
