//! the control plane: coordination, stores, pushes, and the HTTP API over them
