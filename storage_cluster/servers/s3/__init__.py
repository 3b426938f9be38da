"""The S3 gateway: the S3 API in front of the cluster's storage servers."""
