"""Archives (.cbb): import, restore, export."""
