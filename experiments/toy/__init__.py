"""Making of the toy policy that the package ships."""
