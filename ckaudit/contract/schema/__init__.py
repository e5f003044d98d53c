"""The documents of the contract as types, with fields, units and words, and the JSON Schemas made from them."""
