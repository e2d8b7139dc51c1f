"""What tests share and no fixture can give: constants, functions and classes that are needed on import."""
