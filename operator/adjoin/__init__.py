"""The Adjoin operator: device neighbourhoods for Kubernetes pods."""
