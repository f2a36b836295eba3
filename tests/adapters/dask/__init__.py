"""dask, joblib and scikit-learn with processes of their own."""
