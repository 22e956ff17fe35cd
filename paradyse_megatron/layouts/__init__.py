"""Who holds which tokens: the padding rule and layout conversions as integer plans. Integers and numpy only."""
