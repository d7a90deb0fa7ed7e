"""The demo pair: a small Llama target and its EAGLE-3 draft, trained here on generated text."""
