"""Longspan's attention in other packages."""
