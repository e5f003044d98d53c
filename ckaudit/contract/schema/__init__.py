"""The documents of the contract as types: their fields, units and words, and the JSON Schemas made from them."""
