"""The store's server processes: proxy, account, container, object, auth."""
