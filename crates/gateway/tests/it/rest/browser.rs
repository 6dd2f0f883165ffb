//! fault U9
